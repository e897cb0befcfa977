package couch

// places finds ids among those of a question. Most servers answer in the order in which they were asked,
// so that the place of the last id that was found and the next one are tried before an index is made.
type places struct {
	id    func(place int) string
	n     int
	at    int
	index map[string]int
}

// find returns a place of an id. Of ids that stand in several places it may be any.
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

// text is a string as it was asked for, if it is that of raw, and else a new one.
func (p *places) text(raw []byte) string {
	if at, ok := p.find(raw); ok {
		return p.id(at)
	}
	return string(raw)
}
