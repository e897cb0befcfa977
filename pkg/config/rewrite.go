package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrNotWritable says that a file is not to be written, or cannot be replaced.
var ErrNotWritable = errors.New("the file is not writable")

// Replacement is a text that takes the place of another one where a file has that.
type Replacement struct{ Section, Key, Was, Text string }

// ReplaceInFiles changes values in ini files, and in the ini files of directories, and leaves
// every other byte as it was. It returns the files that it changed.
//
// A file is replaced as a whole by one that has its mode and its owner, so that who reads it at
// the same time, or after a crash, sees the one or the other. One without permission to write, be it
// for this process or for anybody, is left alone. The error joins those of all files that have such
// a value and were not changed; it is ErrNotWritable for those.
func ReplaceInFiles(paths []string, replacements []Replacement) (changed []string, err error) {
	var problems []error
	for _, path := range paths {
		files, err := expand(path)
		if err != nil {
			problems = append(problems, fmt.Errorf("rewriting the configuration: %w", err))
			continue
		}
		for _, file := range files {
			done, err := replaceInFile(file, replacements)
			if err != nil {
				problems = append(problems, fmt.Errorf("rewriting %s: %w", file, err))
			}
			if done {
				changed = append(changed, file)
			}
		}
	}
	return changed, errors.Join(problems...)
}

func replaceInFile(path string, replacements []Replacement) (changed bool, err error) {
	path, err = filepath.EvalSymlinks(path) // what a link leads to is the file
	if err != nil {
		return false, err
	}
	before, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	after := replaceINI(string(before), replacements)
	if after == string(before) {
		return false, nil
	}
	if err := replaceFile(path, before, []byte(after)); err != nil {
		return false, err
	}
	return true, nil
}

// replaceINI returns an ini file with other values.
func replaceINI(data string, replacements []Replacement) string {
	entries, _ := parseINI(data)
	next := make(map[int]string) // texts, by the lines that are to have them
	for _, e := range entries {
		for _, r := range replacements {
			if (name{e.section, e.key}) != (name{r.Section, r.Key}) || e.text != r.Was {
				continue
			}
			if _, fits := formatSetting(r.Key, r.Text); fits {
				next[e.line] = r.Text
			}
		}
	}
	var out strings.Builder
	line := 0
	for rest := data; rest != ""; {
		line++
		raw, end := rest, ""
		if i := strings.IndexAny(rest, "\r\n\x1a"); i >= 0 {
			raw, end = rest[:i], rest[i:i+1]
			if strings.HasPrefix(rest[i:], "\r\n") {
				end = "\r\n"
			}
		}
		rest = rest[len(raw)+len(end):]
		if text, wanted := next[line]; wanted {
			// The value is the end of what is no comment.
			setting := stripComment(raw)
			_, value, _ := splitSetting(setting)
			at := strings.Index(raw, setting) + len(setting)
			raw = raw[:at-len(value)] + text + raw[at:]
		}
		out.WriteString(raw)
		out.WriteString(end)
	}
	return out.String()
}

// replaceFile writes a file anew, unless it is another one than before by now.
func replaceFile(path string, before, after []byte) (err error) {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o222 == 0 { // which does not keep root from writing
		return ErrNotWritable
	}
	writable, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotWritable, err)
	}
	_ = writable.Close() // nothing was written

	// Beside it, so that it can take its place, and with a name that no directory of files is read for.
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.new")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotWritable, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, remove(temporary.Name()))
		}
	}()
	_, err = temporary.Write(after)
	if err == nil {
		err = likeness(temporary, info)
	}
	if err == nil {
		err = temporary.Sync()
	}
	if err := errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, before) {
		return errors.Join(err, errors.New("it was changed at the same time"))
	}
	if err := os.Rename(temporary.Name(), path); err != nil { // as of what is mounted
		return fmt.Errorf("%w: %w", ErrNotWritable, err)
	}
	return nil
}

// likeness gives a file the owner and the mode of another one.
func likeness(file *os.File, other fs.FileInfo) error {
	own, err := file.Stat()
	if err != nil {
		return err
	}
	user, group, known := ownerOf(own)
	if u, g, _ := ownerOf(other); known && (u != user || g != group) {
		if err := file.Chown(u, g); err != nil {
			return fmt.Errorf("%w: it belongs to somebody else: %w", ErrNotWritable, err)
		}
	}
	return file.Chmod(other.Mode().Perm())
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
