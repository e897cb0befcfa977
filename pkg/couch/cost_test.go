package couch

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"settee/internal/costtest"
	"settee/internal/testkit"
)

func TestDocumentsWithTooManyAttachments(t *testing.T) {
	t.Parallel()
	doc, err := ParseDocument([]byte(`{"_id":"x","_attachments":{` + strings.Repeat(`"":{},`, maxAttachments) + `"f":{}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = doc.Attachments(); !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "more than 100000") {
		t.Fatal(err)
	}
}

// The budgets of the fuzz tests also hold for large input.
func TestLargeAnswersKeepTheirBudgets(t *testing.T) {
	const many = 20_000
	asked := []DocRevs{{ID: "y", Revs: []string{"1-c"}}}
	parts := func(r io.Reader) { readParts(t, r, "--b--", true) }
	for _, test := range []struct {
		before, again, after string
		perByte              int
		read                 func(io.Reader)
	}{
		{`{"results":[`, `{"id":"","changes":[{"rev":""}]},`, `{}]}`, changesBudget, func(r io.Reader) { _ = drainChanges(r, FeedNormal) }},
		{``, `{"id":"","changes":[{"rev":""}]}`, ``, changesBudget, func(r io.Reader) { _ = drainChanges(r, FeedContinuous) }},
		{`{"results":[{"id":"","changes":[`, `{"rev":""},`, `{}]}]}`, changesBudget, func(r io.Reader) { _ = drainChanges(r, FeedNormal) }},
		{`{"results":[{"id":"x","docs":[`, `{},`, `{}]}]}`, bulkBudget, func(r io.Reader) { _ = drainBulkGet(r) }},
		{`{"results":[`, `{"id":"x","docs":[]},`, `{}]}`, bulkBudget, func(r io.Reader) { _ = drainBulkGet(r) }},
		{`{"y":{"missing":[`, `"",`, `"1-c"]}}`, changesBudget, func(r io.Reader) { _, _ = readRevsDiff(r, asked) }},
		{`{"y":{"possible_ancestors":[`, `"",`, `"1-c"]}}`, changesBudget, func(r io.Reader) { _, _ = readRevsDiff(r, asked) }},
		{`{"rows":[`, `{"key":"x","value":{"rev":"1-a"}},`, `{"key":"y","error":"not_found"}]}`, changesBudget, func(r io.Reader) { _, _ = readWinners(r, []string{"x", "y"}) }},
		{``, "--b\r\nContent-Type:application/json\r\n\r\n{\"_id\":\"x\"}\r\n", `--b--`, partsBudget, parts},
		{``, "--b\r\nContent-Type:multipart/related;boundary=c\r\n\r\n--c\r\n\r\n{\"_id\":\"x\"}\r\n--c--\r\n", `--b--`, partsBudget, parts},
	} {
		text := test.before + strings.Repeat(test.again, many) + test.after
		costtest.Memory(test.perByte).Check(t, len(text), func() { test.read(strings.NewReader(text)) })
		if t.Failed() {
			t.Fatal(test.again)
		}
	}
}

// The cost of an answer is linear even if one author chose both the request and the answer. Quadratic cost would take
// hours.
func TestHostileAnswersCostTheirLength(t *testing.T) {
	testkit.SkipRace(t)
	const many = 200_000
	revs := make([]string, many)
	var rows, parts strings.Builder
	for i := range revs {
		revs[i] = fmt.Sprintf("1-%d", i)
		fmt.Fprintf(&rows, `"%d-x",`, i)
	}
	t.Run("_revs_diff", func(t *testing.T) {
		text := `{"x":{"missing":[` + strings.Repeat(rows.String(), 5) + `"1-7","1-7"]}}`
		missing, err := readRevsDiff(strings.NewReader(text), []DocRevs{{ID: "x", Revs: revs}})
		if err != nil || len(missing[0].Revs) != 1 || missing[0].Revs[0] != "1-7" {
			t.Fatal(len(missing[0].Revs), err)
		}
	})
	t.Run("an id that is named twice", func(t *testing.T) {
		merged, _ := gather([]DocRevs{{ID: "x", Revs: revs[:many/2]}, {ID: "x", Revs: revs[many/4:]}, {ID: "x", Revs: revs}})
		if len(merged) != 1 || len(merged[0].Revs) != many {
			t.Fatal(len(merged))
		}
	})
	t.Run("attachments", func(t *testing.T) {
		var about strings.Builder
		for i := range many / 4 {
			fmt.Fprintf(&about, `"%d":{"follows":true},`, i)
			fmt.Fprintf(&parts, "\r\n--c\r\nContent-Disposition: attachment; filename=\"other\"\r\n\r\n")
		}
		text := "--b\r\nContent-Type: multipart/related; boundary=\"c\"\r\n\r\n--c\r\nContent-Type: application/json\r\n\r\n" +
			`{"_id":"x","_attachments":{` + about.String() + `"f":{}}}` + parts.String() + "\r\n--c--\r\n--b--"
		leaves, err := newMultipartLeaves(strings.NewReader(text), "b", "x", 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := leaves.next()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ; err == nil; n++ {
			_, err = leaf.NextAttachment()
		}
		if n != many/4+1 || err != io.EOF {
			t.Fatal(n, err)
		}
	})
}
