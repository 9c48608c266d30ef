"""Four audits of biased text: diagnosis, identification, extraction and rephrasing."""
