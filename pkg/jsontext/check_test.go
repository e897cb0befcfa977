package jsontext

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"settee/internal/costtest"
)

// jsonTexts are texts of each kind, right and wrong.
var jsonTexts = []string{
	`{}`, `[]`, ` { } `, `[1,2.5,-3e+7,0,-0.0E-1]`, `{"a":{"b":[{"c":null}]},"d":true,"e":false}`, "[\n1\t,\r2 ]",
	`"` + strings.Repeat("x", 100) + `"`, `"0123456\"89"`, `"\u00e9\ud83d\ude00\ud800\/\b\f\n\r\t\\"`, `"Zürich, 東京, 😀"`,
	`"1234567` + "\xc3" + `"`, `"` + "\xc3\x28" + `"`, `"` + "\xed\xa0\x80" + `"`, "\"\x1f\"", "\"1234567\x00\"", "\"\x7f\"",
	`{"a" 1}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{1:1}`, `[1,]`, `[,1]`, `[1 2]`, `[}`, `{]`, `{"a":1]`, `nul`, `nulL`, `True`, `+1`,
	`01`, `1.`, `.5`, `1e`, `1e+`, `-`, `--1`, `1 1`, `"a" "b"`, `"\x"`, `"\u12g4"`, `"\u12`, `"abc`, `{"a`, `{"a":"b`, `[`, `{`, ``,
	strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999), strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001),
	strings.Repeat(`{"a":[`, 70) + strings.Repeat(`]}`, 70), strings.Repeat(`[{"a":`, 64) + "1" + strings.Repeat(`}]`, 64),
	strings.Repeat(`{"a":[`, 70) + strings.Repeat(`}]`, 70), strings.Repeat(`{"a":`, 65) + "{}" + strings.Repeat(`}`, 65) + `,`,
	strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat(`}`, 10_000), strings.Repeat(`{"a":`, 10_000) + "[]" + strings.Repeat(`}`, 10_000),
	`[123,12.5,1.,-1]`, `[1.5]`, `{"a":1.5e3,"b":10.}`, `["x",]`, `{"a":"b",}`, `{"a":"b" "c"}`, `{"exactly8":"exactly8","0123456789abcdef":"0123456789abcdef"}`,
	`{"k` + "\xff" + `":1}`, "\u00a0", "\ufeff{}",
}

func TestCheckValue(t *testing.T) {
	t.Parallel()
	for _, text := range jsonTexts {
		checkedAsStandard(t, text)
	}
}

func FuzzCheckValue(f *testing.F) {
	for _, text := range jsonTexts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { checkedAsStandard(t, text) })
}

// valueBound is what it may cost to read a value: its bytes and the windows.
var valueBound = costtest.Bound{Memory: 1 << 20, MemoryPerByte: 30, Units: 10, BytesPerUnit: 4 << 10}

// FuzzReadValue reads anything as one value, however it arrives: what is taken is what encoding/json takes.
func FuzzReadValue(f *testing.F) {
	for _, text := range jsonTexts {
		f.Add(text)
	}
	for _, text := range []string{
		strings.Repeat("7", 20_000), `{"a":` + strings.Repeat("7", 20_000) + `}`, `"` + strings.Repeat(`\"`, 10_000) + `"`,
		`[` + strings.Repeat(`{},`, 5000) + `[]]`, strings.Repeat(" ", 20_000) + "1", `{` + strings.Repeat(`"a":1,`, 5000) + `"a":1}`,
		strings.Repeat(`[{"":`, 3000), `"` + strings.Repeat("x", 4095) + `"`, `"` + strings.Repeat("é", 4095),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const limit = 1 << 20
		valid := Valid([]byte(text)) && len(text) < limit
		for name, j := range readers(text) {
			var raw []byte
			var err error
			valueBound.Check(t, len(text), func() { raw, err = j.Value(limit) })
			if err != nil {
				require.False(t, valid, "%s of %.200q: %v", name, text, err)
				continue
			}
			require.True(t, Valid(raw), "%s of %.200q", name, text)
			if valid {
				require.Equal(t, strings.Trim(text, " \t\r\n"), string(raw), name)
			}
		}
	})
}

// checkedAsStandard requires that a text is taken for what encoding/json takes it for, wherever it is cut,
// and that the values in it end where they do.
func checkedAsStandard(t *testing.T, text string) {
	t.Helper()
	b := []byte(text)
	valid := json.Valid(b) && utf8.Valid(b)
	require.Equal(t, valid, Valid(b), "%.200q", text)
	if !valid {
		return
	}
	for _, cut := range []int{0, 1, len(b) / 2, len(b) - 1} {
		require.NotEqual(t, NotJSON, End(b[:cut]), "%.200q", text[:cut])
	}
	start := PastBlank(b, 0)
	end := End(b)
	require.Equal(t, end, valueEnd(b, start), "%.200q", text)
	// What follows does not count.
	require.Equal(t, end, End(append(b[:end:end], `,"}]\`...)), "%.200q", text)
	require.Equal(t, end, valueEnd(append(b[:end:end], `,"}]\`...), start), "%.200q", text)
	if b[start] == '{' {
		for m := range Members(b[start:end]) {
			require.True(t, Valid(b[start+m.Value:start+m.End]), "%.200q", text)
		}
	}
}
