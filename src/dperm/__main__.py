"""``python -m dperm``."""

from dperm.cli.main import main

if __name__ == "__main__":
    main()
