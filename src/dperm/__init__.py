"""dperm: sparse and linear models with a differential-privacy guarantee that is true."""

__version__ = "0.1.0.dev0"
