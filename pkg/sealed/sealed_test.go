package sealed_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/sealed"
)

// keyOf returns a key of 32 equal bytes.
func keyOf(b byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) }

func parse(t testing.TB, lines ...string) *sealed.Keys {
	t.Helper()
	keys, err := sealed.Parse("keys", []byte(strings.Join(lines, "\n")))
	require.NoError(t, err)
	return keys
}

func TestSealAndOpen(t *testing.T) {
	t.Parallel()
	keys := parse(t, "new "+keyOf(1), "old "+keyOf(2))
	for _, text := range []string{"", "{}", `{"password":"relax"}`, strings.Repeat("x", 1_000_000)} {
		value := keys.Seal([]byte(text), "args", "a")
		require.True(t, sealed.IsSealed(value))
		require.Equal(t, "new", keys.KeyID(value))
		require.LessOrEqual(t, len(value), len(text)+sealed.MaxOverhead)
		if len(text) > 8 { // shorter ones may be in it by chance
			require.NotContains(t, string(value), text)
		}
		require.NotEqual(t, value, keys.Seal([]byte(text), "args", "a"), "nonces differ")
		opened, err := keys.Open(value, "args", "a")
		require.NoError(t, err)
		require.Equal(t, text, string(opened))
		require.NotNil(t, opened)
	}
}

// A value sealed with the old key opens after a new key is put first, and no longer after the old
// key is removed.
func TestRotation(t *testing.T) {
	t.Parallel()
	value := parse(t, "old "+keyOf(2)).Seal([]byte("text"), "a")
	opened, err := parse(t, "new "+keyOf(1), "old "+keyOf(2)).Open(value, "a")
	require.NoError(t, err)
	require.Equal(t, "text", string(opened))
	for _, without := range []*sealed.Keys{nil, {}, parse(t, "new "+keyOf(1))} {
		_, err = without.Open(value, "a")
		var unknown *sealed.UnknownKeyError
		require.ErrorAs(t, err, &unknown)
		require.Equal(t, "old", unknown.ID)
		require.ErrorContains(t, err, "key_file")
	}
	_, err = parse(t, "old "+keyOf(3)).Open(value, "a")
	require.ErrorIs(t, err, sealed.ErrNotAuthentic)
	require.ErrorContains(t, err, `"old"`)
}

func TestWithoutKeys(t *testing.T) {
	t.Parallel()
	for _, keys := range []*sealed.Keys{nil, {}} {
		require.Equal(t, "{}", string(keys.Seal([]byte("{}"), "a")))
		require.Empty(t, keys.First())
		require.Empty(t, keys.IDs())
	}
	// Plain values open with keys too.
	for _, keys := range []*sealed.Keys{nil, parse(t, "a "+keyOf(1))} {
		for _, text := range []string{"", "{}", "\x00", "relax"} {
			opened, err := keys.Open([]byte(text), "a")
			require.NoError(t, err)
			require.Equal(t, text, string(opened))
			require.Empty(t, keys.KeyID([]byte(text)))
		}
	}
}

// A value opens only in its place and unchanged.
func TestPlace(t *testing.T) {
	t.Parallel()
	keys := parse(t, "a "+keyOf(1), "b "+keyOf(1^255))
	value := keys.Seal([]byte("text"), "args", "a", "b")
	for _, place := range [][]string{nil, {"args"}, {"args", "a"}, {"args", "b", "a"}, {"args", "ab"}, {"argsa", "", "b"}, {"args", "a", "b", ""}, {"args", "a\x01b"}} {
		_, err := keys.Open(value, place...)
		require.ErrorIs(t, err, sealed.ErrNotAuthentic, "%q", place)
	}
	for i := range value {
		changed := bytes.Clone(value)
		changed[i] ^= 1
		opened, err := keys.Open(changed, "args", "a", "b")
		if i == 0 { // another version is a plain value
			require.NoError(t, err)
			require.Equal(t, changed, opened)
			continue
		}
		require.Error(t, err, i)
	}
	for n := 1; n < len(value); n++ {
		_, err := keys.Open(value[:n], "args", "a", "b")
		require.Error(t, err, n)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	keys := parse(t, "# comment", "", "  ", "a\t"+keyOf(1)+"\r", "  # another", " b.2_-"+" "+keyOf(2)+" ", "")
	require.Equal(t, []string{"a", "b.2_-"}, keys.IDs())
	require.Equal(t, "a", keys.First())
	require.True(t, keys.Has("b.2_-"))
	require.False(t, keys.Has("c"))

	long := strings.Repeat("i", 33)
	for text, want := range map[string]string{
		"":                                  "the file has no key",
		"# a " + keyOf(1):                   "the file has no key",
		keyOf(1):                            "keys:1: a line must have an id and a key",
		"\n\na b c":                         "keys:3: a line must have an id and a key",
		keyOf(1) + " a":                     "keys:1: the id of a key must",
		long + " " + keyOf(1):               "keys:1: the id of a key must",
		"a/b " + keyOf(1):                   "keys:1: the id of a key must",
		"ä " + keyOf(1):                     "keys:1: the id of a key must",
		"a " + keyOf(1)[1:]:                 "keys:1: the key is not base64",
		"a !" + keyOf(1)[1:]:                "keys:1: the key is not base64",
		"a " + keyOf(1)[:40]:                "keys:1: the key must have 32 bytes, and has 30",
		"a " + keyOf(1) + "\na " + keyOf(2): `keys:2: the id "a" is already used in line 1`,
		"a " + keyOf(1) + "\nb " + keyOf(1): `keys:2: the key "b" is already used with another id`,
	} {
		_, err := sealed.Parse("keys", []byte(text))
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), keyOf(1)[:20], text)
		require.NotContains(t, err.Error(), long)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "keys")
	require.NoError(t, os.WriteFile(path, []byte("a "+keyOf(1)+"\n"), 0o600))
	keys, err := sealed.Read(path)
	require.NoError(t, err)
	require.Equal(t, "a", keys.First())
	require.NoError(t, os.Chmod(path, 0o400))
	_, err = sealed.Read(path)
	require.NoError(t, err)
	for _, mode := range []os.FileMode{0o640, 0o440} {
		require.NoError(t, os.Chmod(path, mode))
		_, err = sealed.Read(path)
		if os.Getuid() == 0 {
			require.NoError(t, err, "root's file may be read by its group")
			require.NoError(t, os.Chown(path, 65534, 65534))
			_, err = sealed.Read(path)
			require.NoError(t, os.Chown(path, 0, 0))
		}
		require.ErrorContains(t, err, "chmod 600")
	}
	for _, mode := range []os.FileMode{0o604, 0o620, 0o644, 0o601, 0o650, 0o660} {
		require.NoError(t, os.Chmod(path, mode))
		_, err = sealed.Read(path)
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, err, "chmod 600")
		require.ErrorContains(t, err, fmt.Sprintf("%04o", mode))
	}
	_, err = sealed.Read(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = sealed.Read(dir)
	require.ErrorContains(t, err, "is a directory")
	large := filepath.Join(dir, "large")
	require.NoError(t, os.WriteFile(large, bytes.Repeat([]byte("#\n"), 1<<20), 0o600))
	_, err = sealed.Read(large)
	require.ErrorContains(t, err, "more than 1048576 bytes")
}

func TestNewLine(t *testing.T) {
	t.Parallel()
	first, err := sealed.NewLine("a")
	require.NoError(t, err)
	second, err := sealed.NewLine("b")
	require.NoError(t, err)
	require.NotEqual(t, first[2:], second[2:])
	keys := parse(t, "# keys\n"+first+second)
	require.Equal(t, []string{"a", "b"}, keys.IDs())
	_, err = sealed.NewLine("a b")
	require.Error(t, err)
}

func TestKeysAreNotPrinted(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte{'s'}, 32)
	keys := parse(t, "a "+base64.StdEncoding.EncodeToString(secret))
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "keys", keys)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "keys", keys)
	text, err := json.Marshal(map[string]any{"keys": keys})
	require.NoError(t, err)
	for _, printed := range []string{
		fmt.Sprint(keys), fmt.Sprintf("%v %+v %#v %s %q %x %d", keys, keys, keys, keys, keys, keys, keys), fmt.Sprintf("%+v", struct{ K *sealed.Keys }{keys}),
		fmt.Sprintf("%+v %#v", *keys, *keys), log.String(), string(text),
	} {
		require.NotContains(t, printed, "ssss")
		require.NotContains(t, printed, "115 115")
		require.NotContains(t, printed, "7373")
		require.NotContains(t, printed, "0x73, 0x73")
	}
	require.Contains(t, log.String(), `"keys: a"`)
}

func FuzzOpen(f *testing.F) {
	keys := parse(f, "a "+keyOf(1), "b "+keyOf(2))
	value := keys.Seal([]byte("text"), "place")
	for _, seed := range [][]byte{nil, []byte("{}"), value, value[:10], {1}, {1, 255}, {1, 1, 'c'}, append([]byte{1, 0}, value...)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stored []byte) {
		before := bytes.Clone(stored)
		opened, err := keys.Open(stored, "place")
		require.Equal(t, before, stored)
		switch {
		case sealed.IsSealed(stored) && err != nil:
			require.Nil(t, opened)
		case sealed.IsSealed(stored): // by this process, or by another one with the same seeds
			require.Equal(t, "text", string(opened), "only the holder of the key can seal")
		default:
			require.NoError(t, err)
			require.Equal(t, string(stored), string(opened))
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "# c\n", "a " + keyOf(1), "a " + keyOf(1) + "\nb " + keyOf(2), "a b c", "a\x00 b", "\xff " + keyOf(1)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := sealed.Parse("keys", text)
		if err != nil {
			require.Nil(t, keys)
			for _, field := range strings.Fields(string(text)) { // errors do not quote keys
				if len(field) > sealed.MaxIDSize {
					require.NotContains(t, err.Error(), field)
				}
			}
			return
		}
		require.NotEmpty(t, keys.First())
		for _, id := range keys.IDs() {
			require.NoError(t, sealed.CheckID(id))
		}
		opened, err := keys.Open(keys.Seal([]byte("text"), "a"), "a")
		require.NoError(t, err)
		require.Equal(t, "text", string(opened))
	})
}
