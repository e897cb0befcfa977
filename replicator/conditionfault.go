package replicator

import "strings"

// ConditionFault is what people are told of a [Fault].
type ConditionFault struct {
	Code    FaultCode   `json:"code"`
	Side    Side        `json:"side,omitempty"`
	Request RequestCode `json:"request,omitempty"`
	Host    string      `json:"host,omitempty"` // and the port
	Status  int         `json:"http_status,omitempty"`
	Text    string      `json:"text"` // CouchDB's error and reason, without secrets
}

func (f *ConditionFault) is(code FaultCode) bool { return f != nil && f.Code == code }

// told returns what people are told of a fault with a text, nil without both.
func (f *Fault) told(text string) *ConditionFault {
	switch {
	case f == nil && text == "":
		return nil
	case f == nil:
		f = &Fault{Code: FaultUnknown}
	}
	return &ConditionFault{f.Code, f.Side, f.Request, f.Host, f.Status, cleanReason(text)}
}

// LastError is Error, or what Error was if a run that was stopped since has cleared it.
func (s *JobState) LastError() string {
	if s.Error != "" || s.Fault == nil {
		return s.Error
	}
	var failed JobState
	failed.SetFault(s.Fault)
	return failed.Error
}

// lastFault returns the fault of the latest run that failed, or nil.
func lastFault(s *JobState) *ConditionFault { return s.Fault.told(s.LastError()) }

// waitFault returns the fault of a request that is repeated.
func waitFault(w *Wait) *ConditionFault { return w.Fault.told(w.Error) }

// refusalFault returns the latest refusal of a target as a fault, or nil.
func refusalFault(r *Refusing) *ConditionFault {
	if r == nil {
		return nil
	}
	fault := Fault{Code: FaultDocumentRefused, Side: SideTarget}
	return fault.told(strings.Trim(r.Latest.Code+": "+r.Latest.Reason, ": "))
}
