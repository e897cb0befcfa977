package worker

import "time"

// Impatient is a Shared whose requests soon give up on a server that answers 429.
func Impatient() *Shared {
	s := &Shared{}
	s.limiter.Longest = 100 * time.Millisecond
	return s
}

// JudgeReply returns what judge says of a reply to a write, by its name. before are the status and the code of the reply to the
// write before, or nothing.
func JudgeReply(status int, code string, before ...any) string {
	var last *reply
	if len(before) > 0 {
		last = &reply{status: before[0].(int), code: before[1].(string)}
	}
	return map[judgement]string{failure: "failure", doubt: "doubt", refusal: "refusal"}[judge(reply{status: status, code: code}, last)]
}
