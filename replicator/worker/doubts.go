package worker

import (
	"context"
	"errors"
	"net/http"

	"settee/pkg/couch"
	"settee/replicator"
)

// codeStatus has the error codes with which a target refuses a document, as opposed to failing to write it, with the
// status of an answer about that document alone.
var codeStatus = map[string]int{
	"forbidden": http.StatusForbidden, "unauthorized": http.StatusUnauthorized, "conflict": http.StatusConflict,
	"bad_request": http.StatusBadRequest, "doc_validation": http.StatusBadRequest,
	"illegal_docid": http.StatusBadRequest, "illegal_partition": http.StatusBadRequest, "invalid_doc": http.StatusBadRequest,
	"compilation_error": http.StatusBadRequest, "invalid_design_doc": http.StatusBadRequest,
	"document_too_large":   http.StatusRequestEntityTooLarge,
	"attachment_too_large": http.StatusRequestEntityTooLarge, "too_large": http.StatusRequestEntityTooLarge,
	"missing_stub": http.StatusPreconditionFailed, "not_acceptable": http.StatusNotAcceptable,
	"unsupported_media_type": http.StatusUnsupportedMediaType, "bad_content_type": http.StatusUnsupportedMediaType,
	"partition_overflow": http.StatusForbidden, codeMismatch: http.StatusBadRequest,
}

// statusOf returns the status that goes with an error code about a document, or 0 if the code is not about documents.
func statusOf(code string) int { return codeStatus[code] }

// reply is what a target answered to the write of a document.
type reply struct {
	status       int // 0 for a code that is not about documents, in an answer to several writes
	code, reason string
}

// replyOf returns the answer that is the error of a write. ok is false if there was none.
func replyOf(err error) (a reply, ok bool) {
	if one, is := errors.AsType[*couch.DocError](err); is {
		return reply{statusOf(one.Code), one.Code, one.Reason}, true
	}
	e, is := errors.AsType[*couch.Error](err)
	if !is || e.Status < 300 {
		return reply{}, false
	}
	return reply{e.Status, e.Code, e.Reason}, true
}

// same reports whether two answers have the same meaning. Reasons may differ.
func (a reply) same(b reply) bool { return a.status == b.status && a.code == b.code }

// denied reports whether the answer may depend on the user that makes the request.
func (a reply) denied() bool {
	return a.status == http.StatusUnauthorized || a.status == http.StatusForbidden
}

// judgement is what an answer to the write of a document means.
type judgement int

const (
	failure judgement = iota // the document is not known to be at fault
	doubt                    // a second write, made in a way of its own, tells
	refusal                  // the target refuses the document
)

// judge says what an answer to the write of a document means. before is the answer to the write before, or nil if this was the
// first.
//
// 401, 403, 413 and 415 are refusals. Any other 4xx may be about the way of writing, or passes: it is a refusal if a second
// write gets it, too. Answers without a code that CouchDB uses for documents come from proxies and gateways, or are about
// the whole database. They are never refusals, except those about the size of the document or of its id.
func judge(now reply, before *reply) judgement {
	again := before != nil && now.same(*before)
	about := statusOf(now.code) != 0
	switch now.status {
	case http.StatusRequestEntityTooLarge:
		return refusal
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusUnsupportedMediaType:
		if about {
			return refusal
		}
	case http.StatusRequestURITooLong:
		about = true
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return failure
	}
	switch {
	case now.status != 0 && (now.status < 400 || now.status >= 500):
		return failure
	case !again:
		return doubt
	case about:
		return refusal
	}
	return failure
}

// doubtError marks an error of the write of a document that a second write is to confirm.
type doubtError struct{ error }

func (e doubtError) Unwrap() error { return e.error }

// login is the target's login during a write.
type login struct {
	db     *couch.Database
	number int

	asked, holds bool
}

func (p *peer) login() *login { return &login{db: p.db, number: p.db.Login()} }

// held reports, after the write, whether the login was good for it. It asks the target once.
func (l *login) held(ctx context.Context) (bool, error) {
	if l.asked {
		return l.holds, nil
	}
	var err error
	l.holds, err = l.db.LoginHolds(ctx, l.number)
	l.asked = err == nil
	return l.holds, err
}

// reads reports whether the database can be read.
func (p *peer) reads(ctx context.Context) bool {
	_, err := p.db.Info(ctx)
	return err == nil
}

// judged returns what put returns if the write of a document has ended with err. before is the reply to the write before, or nil.
func (r *run) judged(ctx context.Context, doc couch.Document, err error, before *reply, as *login) error {
	now, answered := replyOf(err)
	if !answered || errors.Is(err, couch.ErrNoDatabase) || errors.Is(err, couch.ErrSession) {
		return r.target.failed(replicator.RequestWriteDocument, err)
	}
	verdict := judge(now, before)
	if verdict == refusal && now.denied() {
		var asking error
		if verdict, asking = r.judgeDenied(ctx, err, as); asking != nil {
			return asking
		}
	}
	switch verdict {
	case refusal:
		r.refuse(doc, err)
		return nil
	case doubt:
		return doubtError{err}
	default:
		return r.target.failed(replicator.RequestWriteDocument, err)
	}
}

// judgeDenied says what the refusal err of a write means if it may depend on the user. It is a doubt if the login does not hold:
// then it may be meant for a request without a user. It is a failure if the user can no longer read the database either,
// unless the answer is about several documents.
func (r *run) judgeDenied(ctx context.Context, err error, as *login) (judgement, error) {
	held, asking := as.held(ctx)
	switch {
	case ctx.Err() != nil:
		return failure, context.Cause(ctx)
	case asking != nil:
		return failure, r.target.failed(replicator.RequestLogin, asking)
	case !held:
		return doubt, nil
	}
	_, several := errors.AsType[*couch.DocError](err)
	if several || r.target.reads(ctx) {
		return refusal, nil
	}
	return failure, nil
}
