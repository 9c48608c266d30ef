"""Gates: rules on the numbers of a run, so that a build fails when a model gets worse."""
