package console

import "time"

// Problems are the jobs that need attention, grouped by what is wrong at which end. The ones with the most jobs are in front.
type Problems struct {
	Attention int64     `json:"attention"` // how many jobs there are
	More      bool      `json:"more"`      // whether there may be others
	Total     int64     `json:"total_rows"`
	Problems  []Problem `json:"problems"`
}

// Problem is trouble that several jobs have in common. The node finds the words.
type Problem struct {
	Kind    string    `json:"kind"` // failing, stuck and others
	Message string    `json:"message"`
	Advice  Advice    `json:"advice"` // zero if nothing is known to help
	Jobs    int64     `json:"jobs"`
	Since   time.Time `json:"since"` // when the first of them began to need attention, zero if that is not known
	First   []Job     `json:"first"`
}

// what says what the problem is.
func (p *Problem) what() string {
	if p.Kind == "stuck" {
		return "no progress: " + p.Message
	}
	return p.Message
}

// hint names one of the jobs, and says what to do.
func (p *Problem) hint() string {
	text, advice := "", p.Advice.Text
	if len(p.First) > 0 {
		text = p.First[0].Name()
	}
	if p.Advice.Code == "refused_documents" {
		advice = "settee jobs failures JOB lists them, with the reasons"
	}
	switch {
	case advice == "":
		return text
	case text == "": // late jobs are not named
		return advice
	}
	return text + ": " + advice
}
