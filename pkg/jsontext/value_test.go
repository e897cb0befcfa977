package jsontext

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/internal/costtest"
)

func TestSurrogates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`"\ud83d\ude00"`: "", `"\uD83D\uDE00\ud83d\ude00"`: "", `"\\ud800"`: "", `{"\u0061":"\\\\"}`: "", `"\ud7ff\ue000"`: "",
		`"\ud800"`: `half of a surrogate pair, \ud800`, `"\uDC00"`: `half of a surrogate pair, \udc00`, `"\ud800\u0061"`: `half of a surrogate pair, \ud800`,
		`"\ud800\n"`: `half of a surrogate pair, \ud800`, `{"\ud800":1}`: `half of a surrogate pair, \ud800`,
		`["\ud83d\ude00","\ud83d\ud83d\ude00"]`: `half of a surrogate pair, \ud83d`, `"\ude00\ud83d"`: `half of a surrogate pair, \ude00`,
		`"\ud800`: "not JSON", "\"\xed\xa0\x80\"": "not UTF-8", `[1`: "not JSON", "\xff[": "not UTF-8",
	} {
		err := Check([]byte(text), PairedSurrogates)
		if want == "" {
			require.NoError(t, err, text)
			continue
		}
		require.EqualError(t, err, want, text)
		if strings.HasPrefix(want, "half") {
			require.ErrorIs(t, err, ErrSurrogate)
			require.NoError(t, Check([]byte(text), AnySurrogates), text)
		}
	}
}

func TestMembers(t *testing.T) {
	t.Parallel()
	const text = ` { "a" : 1 , "\u0061\ud800" : [ {} ] ,"":"}", "a":{"b":","} } `
	var keys, values []string
	for m := range Members([]byte(text)) {
		keys, values = append(keys, string(m.Key)), append(values, text[m.Value:m.End])
		require.Equal(t, byte('"'), text[m.Start])
		require.Equal(t, byte('"'), text[m.KeyEnd-1])
	}
	require.Equal(t, []string{"a", "a\ufffd", "", "a"}, keys)
	require.Equal(t, []string{`1`, `[ {} ]`, `"}"`, `{"b":","}`}, values)
	for range Members([]byte(text)) {
		break
	}
	for range Members([]byte(` { } `)) {
		t.Fatal("there is none")
	}
}

func TestElements(t *testing.T) {
	t.Parallel()
	const text = ` [ 1, [2,"]"] ,null,{"a":[]}] `
	var values []string
	for at, value := range Elements([]byte(text)) {
		values = append(values, string(value))
		require.Equal(t, string(value), text[at:at+len(value)])
	}
	require.Equal(t, []string{`1`, `[2,"]"]`, `null`, `{"a":[]}`}, values)
	for range Elements([]byte(text)) {
		break
	}
	for range Elements([]byte("[\n]")) {
		t.Fatal("there is none")
	}
}

func TestString(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{`""`: "", `"a"`: "a", `"\u0061\"\ud83d\ude00\ud800"`: "a\"😀\ufffd"} {
		got, is := String([]byte(raw))
		require.True(t, is)
		require.Equal(t, want, got)
		require.Equal(t, "x"+want, string(AppendString([]byte("x"), []byte(raw))))
	}
	for _, raw := range []string{``, `1`, `null`, `["a"]`} {
		_, is := String([]byte(raw))
		require.False(t, is, raw)
	}
}

func TestStrings(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][]string{`[]`: nil, ` [ ] `: nil, `["a", "\u0061<", ""]`: {"a", "a<", ""}} {
		got, are := Strings([]byte(raw))
		require.True(t, are, raw)
		require.Equal(t, want, got, raw)
	}
	for _, raw := range []string{``, ` `, `null`, `"a"`, `{"a":"b"}`, `[null]`, `["a",1]`, `["a",["b"]]`} {
		_, are := Strings([]byte(raw))
		require.False(t, are, raw)
	}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	text, err := Encode(map[string]string{"a": "<&>\n\"é"})
	require.NoError(t, err)
	require.Equal(t, `{"a":"<&>\n\"é"}`, string(text))
	_, err = Encode(func() {})
	require.ErrorContains(t, err, "unsupported type")
}

func TestIsObject(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{`{}`: true, " \n{}": true, ``: false, ` `: false, `[]`: false, `"{"`: false} {
		require.Equal(t, want, IsObject([]byte(text)), text)
	}
}

// FuzzTokens reads the tokens of whatever is valid as encoding/json does.
func FuzzTokens(f *testing.F) {
	for _, text := range jsonTexts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !Valid([]byte(text)) {
			return
		}
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.UseNumber()
		tokens := ReadTokens([]byte(text))
		for {
			want, err := decoder.Token()
			got, ok := tokens.Next()
			require.Equal(t, err != io.EOF, ok)
			if !ok {
				return
			}
			raw := text[got.Start:got.End]
			switch w := want.(type) {
			case json.Delim:
				require.Equal(t, w.String(), raw)
				require.Equal(t, byte(w), got.Kind)
			case json.Number:
				require.Equal(t, w.String(), raw)
				require.Equal(t, byte('0'), got.Kind)
			case string:
				s, is := String([]byte(raw))
				require.True(t, is)
				require.Equal(t, w, s)
			default:
				require.Equal(t, raw[0], got.Kind)
				require.Contains(t, []string{"true", "false", "null"}, raw)
			}
		}
	})
}

// FuzzObject walks over whatever it gets as over an object: what it passes over is what End passes over.
func FuzzObject(f *testing.F) {
	for _, text := range append(jsonTexts, `{"a":1,"_b":{"c":[]},"\u005fd":2} `, `{"_`, `{"a":1,"_":`, `{"a":1,`, `{"_a":1 "b"`, `{ `) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b := []byte(text)
		if !strings.HasPrefix(text, "{") {
			return
		}
		var all, special []string
		o := WalkObject(b)
		for o.Name() && o.Check() {
			if raw := text[o.Start:o.KeyEnd]; raw[1] == '_' || raw[1] == '\\' {
				special = append(special, string(o.Key))
			}
			all = append(all, string(o.Key))
		}
		require.Equal(t, End(b), o.Over(), "%.200q", text)
		o = WalkObject(b)
		var found []string
		for o.Special() && o.Check() {
			found = append(found, string(o.Key))
		}
		require.Equal(t, End(b), o.Over(), "%.200q", text)
		if o.Over() < 0 {
			return
		}
		require.Equal(t, special, found)
		var again []string
		for m := range Members(b[:o.Over()]) {
			again = append(again, string(m.Key))
		}
		require.Equal(t, all, again)
	})
}

// What is deep or has many members costs its length, and nothing is allocated for it.
func TestHostileTextsCostTheirLength(t *testing.T) {
	const many = 100_000
	bound := costtest.Bound{Memory: 64 << 10, Units: 10, BytesPerUnit: 64 << 10}
	for _, text := range []string{
		"{" + strings.Repeat(`"a":[{},[]],`, many) + `"a":1}`, `{"a":[` + strings.Repeat(`1,`, many) + `1]}`,
		strings.Repeat(`{"a":`, 9_999) + "1" + strings.Repeat("}", 9_999), `{"a":` + strings.Repeat("[", many),
		`{"a":"` + strings.Repeat("é", many) + `"}`, `{"a":` + strings.Repeat("1", many) + `}`,
	} {
		b := []byte(text)
		bound.Check(t, len(b), func() {
			if !Valid(b) || Check(b, PairedSurrogates) != nil {
				return
			}
			for range Members(b) {
				continue
			}
			for tokens, more := ReadTokens(b), true; more; {
				_, more = tokens.Next()
			}
		})
	}
}
