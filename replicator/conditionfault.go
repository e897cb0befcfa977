package replicator

import "strings"

// ConditionFault is what fails. Its text is masked.
type ConditionFault struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// The codes of faults.
const (
	faultCollision         = "collision"
	faultInvalidDefinition = "invalid_definition"
	faultSealed            = "sealed"
	faultUnknown           = "unknown"
)

func (f *ConditionFault) is(code string) bool { return f != nil && f.Code == code }

// faultOf returns a fault, or nil without a text.
func faultOf(code, text string) *ConditionFault {
	if text == "" {
		return nil
	}
	return &ConditionFault{code, cleanReason(text)}
}

// lastFault returns the fault of the latest run that failed, or nil. Its code follows from the codes of errors that are used
// for one kind of failure only.
func lastFault(s *JobState) *ConditionFault {
	text, code := s.Error, faultUnknown
	switch {
	case s.Sealed:
		code = faultSealed
	case s.ErrorCode == "conflict":
		code = faultCollision
	case s.ErrorCode == "bad_request":
		code = faultInvalidDefinition
	}
	for _, event := range s.History { // a run that was stopped since has cleared Error
		if text == "" && event.Type == EventCrashed {
			text = event.Reason
		}
	}
	return faultOf(code, text)
}

// waitFault returns the fault of a request that is repeated.
func waitFault(w *Wait) *ConditionFault { return faultOf(faultUnknown, w.Error) }

// refusalFault returns the latest refusal of a target as a fault, or nil.
func refusalFault(r *Refusing) *ConditionFault {
	if r == nil {
		return nil
	}
	return faultOf(faultUnknown, strings.Trim(r.Latest.Code+": "+r.Latest.Reason, ": "))
}
