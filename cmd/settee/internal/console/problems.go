package console

import (
	"strings"
	"time"

	"settee/replicator/causes"
)

// Problems are the jobs that need attention, grouped by endpoint and cause. The ones with the most jobs are in front.
type Problems struct {
	Attention int64     `json:"attention"` // how many jobs there are
	More      bool      `json:"more"`      // whether there may be others
	Total     int64     `json:"total_rows"`
	Problems  []Problem `json:"problems"`
}

// Problem is trouble that several jobs have in common.
type Problem struct {
	Endpoint string        `json:"endpoint"` // the host and the port, or "" if the error names none
	Cause    string        `json:"cause"`
	Kind     string        `json:"kind"` // crashing, failed, stuck, refused or late
	Jobs     int64         `json:"jobs"`
	Since    time.Time     `json:"since"` // when the first of them began to fail, zero if that is not known
	Remedy   causes.Remedy `json:"remedy"`
	Advice   string        `json:"advice"`
	First    []Job         `json:"first"`
}

// what says what the problem is.
func (p *Problem) what() string {
	text := p.Cause
	if p.Kind == "stuck" {
		text = "no progress: " + strings.ReplaceAll(p.Cause, "_", " ")
	}
	if p.Endpoint != "" {
		text = p.Endpoint + ": " + text
	}
	return text
}

// hint names one of the jobs, and says what to do.
func (p *Problem) hint() string {
	text, advice := "", p.Advice
	if len(p.First) > 0 {
		text = p.First[0].Name()
	}
	if p.Remedy == causes.Documents {
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
