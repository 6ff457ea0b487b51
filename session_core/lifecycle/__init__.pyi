from session_core.lifecycle.agent_cache import CleanUpFunction as CleanUpFunction
from session_core.lifecycle.agent_turn import Agent as Agent
from session_core.lifecycle.agent_turn import AgentFactory as AgentFactory
from session_core.lifecycle.cache_table import CachedTurn as CachedTurn
from session_core.lifecycle.cache_table import ReuseReason as ReuseReason
from session_core.lifecycle.replies import AgentResult as AgentResult
