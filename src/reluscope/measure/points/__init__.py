"""Networks at many points: plain, in single precision, and aimed at rare events."""
