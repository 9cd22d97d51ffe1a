"""``python -m dperm``."""

from dperm.cli.start import main

if __name__ == "__main__":
    main()
