package couch

// places finds the index of an id in a request. Most servers answer in the order of the request, so it tries the last
// index and the next one before it builds a map.
type places struct {
	id    func(place int) string
	n     int
	at    int
	index map[string]int
}

// find returns an index of an id. If the id occurs several times, it may be any of them.
func (p *places) find(id []byte) (int, bool) {
	for next := p.at; next < p.n && next <= p.at+1; next++ {
		if p.id(next) == string(id) {
			p.at = next
			return next, true
		}
	}
	if p.index == nil {
		p.index = make(map[string]int, p.n)
		for i := range p.n {
			p.index[p.id(i)] = i
		}
	}
	at, ok := p.index[string(id)]
	if ok {
		p.at = at
	}
	return at, ok
}

// text returns the id of the request that equals raw, or else a new string.
func (p *places) text(raw []byte) string {
	if at, ok := p.find(raw); ok {
		return p.id(at)
	}
	return string(raw)
}
