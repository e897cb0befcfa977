package replicator

import (
	"encoding/json"
	"fmt"
	"strings"
)

// ConditionFault is what people are told of a [Fault].
type ConditionFault struct {
	Fault
	// Message says for people what is wrong at which end: "source a:5984: connection refused". Text is CouchDB's error and reason,
	// and also the message of a fault that only words describe. Neither has secrets.
	Message, Text string
}

// MarshalJSON writes the members of the fault, "message" and "text". It leaves out what the job has elsewhere, and masks credentials.
func (f ConditionFault) MarshalJSON() ([]byte, error) {
	type plain Fault
	fault := f.clean()
	fault.Database, fault.Text = "", ""
	return json.Marshal(struct {
		plain
		Message string `json:"message"`
		Text    string `json:"text"`
	}{plain(fault), cleanReason(f.Message), cleanReason(f.Text)})
}

func (f *ConditionFault) is(code FaultCode) bool { return f != nil && f.Code == code }

// told returns what people are told of a fault, nil of none. words are for one that only words describe.
func (f *Fault) told(words string) *ConditionFault {
	switch {
	case f == nil && words == "":
		return nil
	case f == nil:
		f = &Fault{Code: FaultUnknown}
	}
	if words == "" {
		words = f.inCouchDB()
	}
	out := &ConditionFault{Fault: f.clean(), Message: cleanReason(words), Text: cleanReason(words)}
	if !f.Code.inWords() || words == "" {
		out.Message = cleanReason(f.forPeople())
	}
	return out
}

// inCouchDB returns CouchDB's error and reason for the fault, as the state of a job has them.
func (f *Fault) inCouchDB() string {
	var failed JobState
	failed.SetFault(f)
	return failed.Error
}

// inWords reports whether only the words of a server or of this node say what is wrong with one job.
func (c FaultCode) inWords() bool {
	return c.Open() || c == FaultCollision || c == FaultSealed || c == FaultInvalid || faultTexts[c] == ""
}

// Open reports whether jobs with this fault have no more in common than that. Each has its own words.
func (c FaultCode) Open() bool {
	switch c {
	case FaultUnknown, FaultUnlistable, FaultMirrorRefused, FaultTargetChanged:
		return true
	}
	return false
}

// forPeople says what is wrong at which end.
func (f *Fault) forPeople() string {
	text := f.Code.At(f.Side, f.Host)
	switch f.Code {
	case FaultServerError, FaultUnexpectedStatus:
		text = fmt.Sprintf("%s, %d", text, f.Status)
		if f.RetryAfter > 0 {
			text += ", and asks to wait"
		}
	case FaultDatabaseMissing:
		return text // servers say no more
	}
	return text + f.said()
}

// At says what is wrong at which end. side and host may be empty.
func (c FaultCode) At(side Side, host string) string {
	text := faultTexts[c]
	if text == "" {
		text = strings.ReplaceAll(string(c), "_", " ")
	}
	if end := strings.TrimSpace(string(side) + " " + host); end != "" {
		text = end + ": " + text
	}
	return text
}

// LastError is Error, or what Error was if a run that was stopped since has cleared it.
func (s *JobState) LastError() string {
	if s.Error != "" || s.Fault == nil {
		return s.Error
	}
	return s.Fault.inCouchDB()
}

// lastFault returns the fault of the latest run that failed, or nil.
func lastFault(s *JobState) *ConditionFault { return s.Fault.told(s.LastError()) }

// waitFault returns the fault of a request that is repeated.
func waitFault(w *Wait) *ConditionFault { return w.Fault.told(w.Error) }

// refusalFault returns the latest refusal of a target as a fault, or nil.
func refusalFault(r *Refusing, target Endpoint) *ConditionFault {
	if r == nil {
		return nil
	}
	fault := Fault{
		Code: FaultDocumentRefused, Side: SideTarget, Host: target.Host(), Status: r.Latest.Status, Word: r.Latest.Code, Said: r.Latest.Reason,
		Document: &DocRef{r.Latest.ID, r.Latest.Rev}, At: r.Latest.Time,
	}
	return fault.told(strings.Trim(r.Latest.Code+": "+r.Latest.Reason, ": "))
}

// fault returns what is wrong with a mirror as a whole, nil if nothing is.
func (p *MirrorProgress) fault(r *Replication) *ConditionFault {
	text, _ := p.Fault()
	switch {
	case p.Error != "":
		return (&Fault{Code: FaultUnlistable, Side: SideSource, Host: r.Source.Host()}).told(text)
	case p.Target.Error != "":
		return (&Fault{Code: FaultUnknown, Side: SideTarget, Host: r.Target.Host()}).told(text)
	case p.Target.Lost != nil:
		return (&Fault{Code: FaultTargetChanged, Side: SideTarget, Host: r.Target.Host()}).told(text)
	}
	return nil
}
