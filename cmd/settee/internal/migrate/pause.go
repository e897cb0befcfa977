package migrate

import (
	"context"
	"net/http"

	"settee/cmd/settee/internal/remote"
)

// pause says how the shares of a database of settee were set before the database was paused. It is in the record of the
// database until a way back has ended.
type pause struct {
	Shares *string `json:"shares"` // as set in settee's store; nil: not set there
}

func (t *transfer) sharesPath() string {
	return "/_node/_local/_config/replicator.shares" + remote.Path(t.db)
}

// pause gives settee's database no shares.
func (t *transfer) pause(ctx context.Context) error {
	t.counts.Began = true
	r, err := t.Settee.readRecord(ctx, t.db)
	if err != nil {
		return err
	}
	if r.Pause == nil {
		r.Pause = &pause{}
		var set map[string]map[string]struct{ Value, Origin string }
		if err := t.Settee.Get(ctx, "/_node/_local/_config?origins=true", &set); err != nil {
			return err
		}
		if shares := set["replicator.shares"][t.db]; shares.Origin == "store" {
			r.Pause.Shares = &shares.Value
		}
		if err := t.Settee.writeRecord(ctx, t.db, r); err != nil {
			return err
		}
	}
	return t.Settee.Ask(ctx, http.MethodPut, t.sharesPath(), "0", nil)
}

// resume gives settee's database the shares that it had before it was paused, if it is.
func (t *transfer) resume(ctx context.Context) error {
	r, err := t.Settee.readRecord(ctx, t.db)
	if err != nil || r.Pause == nil {
		return err
	}
	method, body := http.MethodDelete, any(nil)
	if r.Pause.Shares != nil {
		method, body = http.MethodPut, *r.Pause.Shares
	}
	if err := t.Settee.Ask(ctx, method, t.sharesPath(), body, nil); err != nil && !remote.IsStatus(err, http.StatusNotFound) {
		return err
	}
	r.Pause = nil
	return t.Settee.writeRecord(ctx, t.db, r)
}
