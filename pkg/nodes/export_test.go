package nodes

// Renew renews the row once.
func (r *Registry) Renew() error { return r.renew() }
