"""Gates: rules on the results of a run, which fail a build if a model gets worse."""
