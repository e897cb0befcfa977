package web

import (
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"time"

	"settee/pkg/jsontext"

	"github.com/rs/zerolog"
)

// Respond answers with a value as JSON.
func Respond(w http.ResponseWriter, r *http.Request, status int, value any) error {
	body, err := jsontext.Encode(value)
	if err != nil {
		return fmt.Errorf("encoding an answer: %w", err)
	}
	Send(w, r, status, append(body, '\n'))
	return nil
}

// RespondOK answers {"ok":true}.
func RespondOK(w http.ResponseWriter, r *http.Request, status int) error {
	return Respond(w, r, status, struct {
		OK bool `json:"ok"`
	}{true})
}

// Send answers with JSON, which ends with a line feed, as CouchDB's bodies do.
func Send(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	ExtendDeadline(w)
	w.Header().Set("Content-Type", "application/json")
	SetLength(w, int64(len(body)))
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	if _, err := w.Write(body); err != nil {
		zerolog.Ctx(r.Context()).Debug().Err(err).Msg("the client did not take the answer")
	}
}

// ExtendDeadline gives the client sendTimeout to receive what is written next. A request begins without a deadline.
func ExtendDeadline(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sendTimeout))
}

// SendList answers with a JSON list of values while they are read.
func SendList[T any](w http.ResponseWriter, r *http.Request, values iter.Seq2[T, error]) error {
	return SendStream(w, r, "application/json", func(out *Stream) error {
		a, i := Appender{To: out}, 0
		a.Raw("[")
		for value, err := range values {
			if err != nil {
				return err
			}
			if a.Raw(Separator(i)).Value(value); a.Err != nil {
				return a.Err
			}
			i++
		}
		return a.Raw("]\n").Err
	})
}

// Separator returns what stands before element i of a JSON list.
func Separator(i int) string {
	if i == 0 {
		return ""
	}
	return ","
}

// SendMeasured answers with what write writes, and its length. write is called twice: making a short answer twice
// costs less than keeping it.
func SendMeasured(w http.ResponseWriter, r *http.Request, contentType string, write func(io.Writer) error) error {
	var size Counter
	if err := write(&size); err != nil {
		return err
	}
	SetLength(w, int64(size))
	return SendBody(w, r, contentType, func(out *Stream) error { return write(out) })
}

// SetLength sets the Content-Length of an answer.
func SetLength(w http.ResponseWriter, length int64) {
	w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
}

// SendBody answers with what write writes. It does not call write for HEAD.
func SendBody(w http.ResponseWriter, r *http.Request, contentType string, write func(*Stream) error) error {
	if r.Method == http.MethodHead {
		write = func(*Stream) error { return nil }
	}
	return SendStream(w, r, contentType, write)
}

// SendStream answers with what write writes. If write returns an error before anything was sent, the error is the
// answer.
func SendStream(w http.ResponseWriter, r *http.Request, contentType string, write func(*Stream) error) error {
	out := NewStream(w, r, http.StatusOK, contentType)
	if err := write(out); err != nil {
		return err
	}
	return out.End()
}

// Counter counts the bytes that are written to it.
type Counter int64

// Write implements io.Writer.
func (c *Counter) Write(p []byte) (int, error) {
	*c += Counter(len(p))
	return len(p), nil
}
