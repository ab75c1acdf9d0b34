"""Problems of the race, in the layout of benchopt: their parameters are the rows."""
