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

// ErrNotWritable is the error for a file that must not or cannot be replaced.
var ErrNotWritable = errors.New("the file is not writable")

// Replacement replaces the text Was of a setting by Text.
type Replacement struct{ Section, Key, Was, Text string }

// ReplaceInFiles changes values in ini files, and in the ini files of directories, and leaves
// every other byte as it is. It returns the files that it changed.
//
// A file is replaced atomically by one with the same mode and owner. A file without write
// permission for this process, or for all, is not changed. The error joins the errors of all
// files with such a value that were not changed; it is ErrNotWritable for files that cannot be
// written.
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
	path, err = filepath.EvalSymlinks(path) // replace the target of a link, not the link
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

// replaceINI returns the text of an ini file with some values replaced.
func replaceINI(data string, replacements []Replacement) string {
	entries, _ := parseINI(data)
	next := make(map[int]string) // new texts by line
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
			// The value is at the end of the line without its comment.
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

// replaceFile replaces a file, unless it is no longer equal to before.
func replaceFile(path string, before, after []byte) (err error) {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o222 == 0 { // root could write the file all the same
		return ErrNotWritable
	}
	writable, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotWritable, err)
	}
	_ = writable.Close() // nothing was written

	// The temporary file is in the same directory, so that a rename replaces the file. Its name
	// does not end in .ini, so that it is not read.
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
		err = copyOwnerAndMode(temporary, info)
	}
	if err == nil {
		err = temporary.Sync()
	}
	if err := errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, before) {
		return errors.Join(err, errors.New("the file was changed meanwhile"))
	}
	if err := os.Rename(temporary.Name(), path); err != nil { // such as a mounted file
		return fmt.Errorf("%w: %w", ErrNotWritable, err)
	}
	return nil
}

// copyOwnerAndMode gives a file the owner and the mode of another one.
func copyOwnerAndMode(file *os.File, other fs.FileInfo) error {
	own, err := file.Stat()
	if err != nil {
		return err
	}
	user, group, known := ownerOf(own)
	if u, g, _ := ownerOf(other); known && (u != user || g != group) {
		if err := file.Chown(u, g); err != nil {
			return fmt.Errorf("%w: it belongs to another user: %w", ErrNotWritable, err)
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
