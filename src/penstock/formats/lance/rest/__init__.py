"""Lance's REST namespace on a Penstock lake, for its clients in all languages."""
