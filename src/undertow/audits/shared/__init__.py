"""Building blocks that several audits use."""
