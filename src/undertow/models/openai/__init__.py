"""Client of OpenAI-compatible servers: connection, constrained generation, log-probabilities."""
