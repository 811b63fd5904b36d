"""Lance tables: a line of versions, each a manifest that its writer has made and the lake ratifies."""
