package worker

import "sync"

// Parker asks a run to park, as many times as needed: each run of a job has its own. The zero value is ready to use.
type Parker struct {
	mu    sync.Mutex
	asked func() // nil while no run listens
}

// Ask asks the run to park. It does not wait. A run that is not idle ignores it. An idle run then ends with Result.Parked, or
// calls Job.Idle with false, and with true when it may be asked again, a second later or more.
func (p *Parker) Ask() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked != nil {
		p.asked()
	}
}

// Listen makes Ask call asked, which must not wait, until end is called. A run listens from its beginning to its end.
func (p *Parker) Listen(asked func()) (end func()) {
	p.set(asked)
	return func() { p.set(nil) }
}

func (p *Parker) set(asked func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = asked
}
