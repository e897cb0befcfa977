package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// writeForService writes a file that a service reads and that may have secrets, in place of a file that may be there. In a
// folder of root's that only its group may read as well, such as /etc/settee of the packages, root gives the file to that
// group, which may only read it. Elsewhere the file has the owner and the mode of the one that was there, or else it can be
// read by its owner alone.
func writeForService(path string, text []byte) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // with the mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	_, err = file.Write(text)
	if err = errors.Join(err, giveToService(file, path), file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// giveToService gives a new file the owner and the mode that writeForService names.
func giveToService(file *os.File, path string) error {
	folder, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return err
	}
	if group, found := serviceGroup(folder); found {
		return errors.Join(file.Chown(0, group), file.Chmod(0o640))
	}
	before, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if user, group, known := ownerOf(before); known && os.Geteuid() == 0 {
		err = file.Chown(user, group)
	}
	return errors.Join(err, file.Chmod(before.Mode().Perm()))
}

// serviceGroup returns the group of a folder, if it is the group of a service that reads the files that root writes there.
func serviceGroup(folder fs.FileInfo) (group int, found bool) {
	user, group, known := ownerOf(folder)
	const forGroup, forOthers = 0o050, 0o007
	mode := folder.Mode().Perm()
	return group, known && os.Geteuid() == 0 && user == 0 && group != 0 && mode&forGroup == forGroup && mode&forOthers == 0
}
