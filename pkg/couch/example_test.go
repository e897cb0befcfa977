package couch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"settee/pkg/couch"
)

// answers serves a database with one document.
func answers(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.Method + " " + r.URL.Path {
	case "GET /pets/_changes":
		fmt.Fprint(w, `{"results":[{"seq":"1-x","id":"rex","changes":[{"rev":"1-a"}]}],"last_seq":"1-x","pending":0}`)
	case "POST /pets/_revs_diff":
		fmt.Fprint(w, `{"rex":{"missing":["2-b"]}}`)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"error":"not_found","reason":"missing"}`)
	}
}

// This reads a changes feed, asks for missing revisions, and looks for a missing document.
func Example() {
	ctx := context.Background()
	server := httptest.NewServer(http.HandlerFunc(answers))
	defer server.Close()
	cfg := couch.DefaultConfig()
	cfg.URL = server.URL + "/pets"
	db, err := couch.Open(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()

	feed, err := db.Changes(ctx, couch.ChangesOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer feed.Close()
	for {
		row, err := feed.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(row.ID, row.Revs)
	}

	missing, err := db.RevsDiff(ctx, []couch.DocRevs{{ID: "rex", Revs: []string{"1-a", "2-b"}}})
	fmt.Println(missing[0].Revs, err)

	_, err = db.Get(ctx, "fido")
	fmt.Println(errors.Is(err, couch.ErrNotFound))
	// Output:
	// rex [1-a]
	// [2-b] <nil>
	// true
}
