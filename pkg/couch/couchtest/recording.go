package couchtest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"settee/internal/testkit"
)

// Recording is one exchange with a real CouchDB 3.5.
type Recording struct {
	Number int    // three digits at the start of the file names
	Name   string // the rest of the name

	Request, Response []byte // byte for byte

	Method, Target string // of the request; Target is its path and query
	RequestHeader  http.Header
	RequestBody    string
	Status         int // of the response
	Header         http.Header
	Body           string
	// CutOff reports that the response, a live feed, has no end: the client left, or the server failed in the middle and
	// sent another response.
	CutOff bool
}

// Recordings reads all exchanges of testdata/wire in order.
func Recordings(t testing.TB) []Recording {
	t.Helper()
	return readRecordings(t, "[0-9][0-9][0-9]-*.response")
}

// Recorded reads the exchange of testdata/wire with this number.
func Recorded(t testing.TB, number int) Recording {
	t.Helper()
	return readRecordings(t, fmt.Sprintf("%03d-*.response", number))[0]
}

func readRecordings(t testing.TB, pattern string) []Recording {
	t.Helper()
	root, err := testkit.ModuleRoot()
	if err != nil {
		t.Fatalf("reading recordings: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(root, "testdata", "wire", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings %s in testdata/wire: %v", pattern, err)
	}
	var all []Recording
	for _, file := range files {
		stem := file[:len(file)-len(".response")]
		r := Recording{Name: filepath.Base(stem)[len("000-"):]}
		if _, err := fmt.Sscanf(filepath.Base(stem), "%03d-", &r.Number); err != nil {
			t.Fatalf("reading recordings: %s: %v", stem, err)
		}
		if err := r.read(stem); err != nil {
			t.Fatalf("reading recordings: %s: %v", stem, err)
		}
		all = append(all, r)
	}
	return all
}

func (r *Recording) read(stem string) (err error) {
	if r.Request, err = os.ReadFile(stem + ".request"); err != nil {
		return err
	}
	if r.Response, err = os.ReadFile(stem + ".response"); err != nil {
		return err
	}
	request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(r.Request)))
	if err != nil {
		return err
	}
	r.Method, r.Target, r.RequestHeader = request.Method, request.RequestURI, request.Header
	// The body's host names were replaced, so its length differs from the header.
	_, sent, _ := bytes.Cut(r.Request, []byte("\r\n\r\n"))
	r.RequestBody = string(sent)
	response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(r.Response)), request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	r.Status, r.Header = response.StatusCode, response.Header
	body, err := io.ReadAll(response.Body)
	r.Body, r.CutOff = string(body), err != nil
	return nil
}
