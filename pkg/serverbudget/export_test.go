package serverbudget

// PartsOf divides a limit among nodes with needs, by their names, when none has taken anything.
func PartsOf(limit Limit, needs map[string]Need, turn int64) map[string]Limit {
	parts := map[string]Limit{}
	for name := range needs {
		parts[name] = partOf(limit, needs, name, turn)
	}
	return parts
}
