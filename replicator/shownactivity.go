package replicator

import "time"

// ShownActivity is the `activity` member of a running job in listings: an [Activity] without what the job's [Condition] says.
type ShownActivity struct {
	BatchesInFlight int         `json:"batches_in_flight"`
	LastProgress    time.Time   `json:"last_progress,omitzero"`
	LastMoved       time.Time   `json:"last_moved,omitzero"`
	Waiting         []ShownWait `json:"waiting,omitempty"`
	Budget          *BudgetWait `json:"budget,omitempty"`
	Refusing        *Refusing   `json:"refusing,omitempty"`
}

// ShownWait is a [Wait] with its fault in the form of conditions.
type ShownWait struct {
	Endpoint string          `json:"endpoint"`
	Attempt  int             `json:"attempt"`
	Attempts int             `json:"attempts,omitempty"`
	Since    time.Time       `json:"since"`
	Until    time.Time       `json:"until"`
	Fault    *ConditionFault `json:"fault"`
}

// ShownActivity returns the activity of a running job, nil for others.
func (s *JobState) ShownActivity() *ShownActivity {
	if s.State != StateRunning || s.Activity == nil {
		return nil
	}
	a := s.Activity
	shown := &ShownActivity{
		BatchesInFlight: a.BatchesInFlight, LastProgress: wholeSeconds(a.LastProgress), LastMoved: wholeSeconds(a.LastMoved),
		Budget: a.Budget,
	}
	for i := range a.Waiting {
		w := &a.Waiting[i]
		shown.Waiting = append(shown.Waiting, ShownWait{
			w.Endpoint, w.Attempt, w.Attempts, wholeSeconds(w.Since), wholeSeconds(w.Until), waitFault(w),
		})
	}
	if a.Refusing != nil {
		refusing := *a.Refusing
		refusing.Since = wholeSeconds(refusing.Since)
		shown.Refusing = &refusing
	}
	return shown
}
