"""GaLU networks: what Fiat, Malach and Shalev-Shwartz (2019) say, and what we measure."""
