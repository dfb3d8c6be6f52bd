"""The OpenAI-compatible endpoint on Ray Serve and the engines behind it. Routing decisions are the coordinator's."""
