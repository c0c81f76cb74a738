// Package set merges the manifests of a folder into the pods, ConfigMaps and Secrets that a node
// should have. What cannot be read or is invalid changes nothing: the last valid version stays. It
// does no I/O.
//
//	set.go      Next: the set after a reading of the folder
//	conflict.go objects that several files have
//	name.go     Ignored: the names of files that are no manifests
package set

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/internal/base/strict"
	"jettison/pods/spec"
)

// Folder is one reading of the folder of manifests.
type Folder struct {
	Files []File // all, without those that Ignored names
	Err   error  // the folder could not be read: Files is empty or incomplete
	// ID identifies the folder itself: another one can come in its place, by a rename or a mount.
	ID string
}

// File is one reading of a file.
type File struct {
	Name string // without the folder
	Text []byte
	Err  error // the file could not be read
	// Unchanged: the file is the same as in the last reading, and Text is not set.
	Unchanged bool
}

// Host has the values of the node that become part of its pods.
type Host struct {
	Node string // stored name
	// UIDs that were taken over from a kubelet, by the pod. They win over the computed ones, but not
	// over one that the manifest has.
	UIDs map[spec.Key]types.UID
}

// Set is the result of a reading. It is never modified.
type Set struct {
	// Objects has the ConfigMaps and Secrets, and the pods as the manifests have them.
	Objects map[spec.Key]*Object
	// Problems are sorted by file and line. They are repeated until they are solved.
	Problems []Problem
	// Complete reports whether the set has every pod that the folder may have. If not, a pod that
	// runs and is not in the set must not be stopped: a file that was never valid may have it.
	Complete bool

	files map[string]*file
	id    string // of the folder that the files are from
}

// errReplaced is the error of an empty folder in the place of one with pods.
var errReplaced = errors.New("was replaced by an empty folder, or is not mounted: put the manifests " +
	"back; to remove their pods, write a manifest into it and remove that")

// Object is an object of the set.
type Object struct {
	*spec.Object
	File  string  // the manifest that has it
	Bound *v1.Pod // the pod as it runs on the node; the same pointer while nothing changes
}

// Problem is an error of manifests, or of the folder. The set has their last valid objects, or none.
type Problem struct {
	Files []string // sorted; empty: the folder
	Line  int      // 0: none
	Err   error
	Kept  bool // an earlier version stays in use
}

// Error returns "FILE: line 3: spec: cause; its last valid version stays in use".
func (p *Problem) Error() string {
	text := cmp.Or(strings.Join(p.Files, ", "), "folder") + ": " + p.Err.Error()
	if p.Kept {
		text += "; the last valid version stays in use"
	}
	return text
}

// file is a manifest as last read.
type file struct {
	digest [sha256.Size]byte
	errs   []*strict.FieldError // of the last text
	valid  []*spec.Object       // of the last valid text; nil: none was valid yet
}

// Next returns the set after a reading. prev is the set before it; nil: this is the first one.
func Next(prev *Set, folder Folder, host Host) *Set {
	if prev == nil {
		prev = &Set{}
	}
	s := &Set{Complete: true, files: map[string]*file{}, id: folder.ID}
	if folder.ID != prev.id && len(folder.Files) == 0 && len(prev.files) > 0 {
		folder.Err = cmp.Or(folder.Err, errReplaced)
	}
	if folder.Err != nil {
		s.files, s.id = prev.files, prev.id
		s.Complete = prev.files != nil
		s.problem(Problem{Err: folder.Err, Kept: len(prev.Objects) > 0})
		for name, f := range s.files {
			s.fileProblems(name, f, nil)
		}
	}
	for i := 0; folder.Err == nil && i < len(folder.Files); i++ {
		f := &folder.Files[i]
		s.files[f.Name] = prev.files[f.Name].next(f, host.Node)
		s.fileProblems(f.Name, s.files[f.Name], f.Err)
	}
	s.merge(prev, host)
	slices.SortFunc(s.Problems, func(a, b Problem) int {
		return cmp.Or(slices.Compare(a.Files, b.Files), cmp.Compare(a.Line, b.Line),
			strings.Compare(a.Err.Error(), b.Err.Error()))
	})
	return s
}

// next returns the file after a reading. f is the file before it; nil: it is new.
func (f *file) next(read *File, node string) *file {
	if f == nil {
		f = &file{}
	}
	if read.Err != nil || read.Unchanged {
		return f
	}
	out := &file{digest: sha256.Sum256(read.Text), valid: f.valid}
	if out.digest == f.digest {
		return f
	}
	var objects []*spec.Object
	if objects, out.errs = spec.Parse(read.Text, node); len(out.errs) == 0 {
		out.valid = objects
	}
	return out
}

// fileProblems adds the problems of a file, which could not be read if err is set.
func (s *Set) fileProblems(name string, f *file, err error) {
	kept := f.valid != nil
	s.Complete = s.Complete && kept
	if err == nil && len(f.errs) == 0 && !kept {
		err = errors.New("not read yet")
	}
	if err != nil {
		s.problem(Problem{Files: []string{name}, Err: err, Kept: kept})
		return
	}
	for _, e := range f.errs {
		s.problem(Problem{Files: []string{name}, Line: e.Line, Err: e, Kept: kept})
	}
}

func (s *Set) problem(p Problem) { s.Problems = append(s.Problems, p) }

// merge fills the objects from the files.
func (s *Set) merge(prev *Set, host Host) {
	copies := map[spec.Key][]*Object{} // by file name
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		for _, o := range s.files[name].valid {
			copies[o.Key] = append(copies[o.Key], &Object{Object: o, File: name})
		}
	}
	s.Objects = map[spec.Key]*Object{}
	for key, all := range copies {
		if o := s.choose(all, prev.Objects[key]); o != nil {
			s.Objects[key] = o
		}
	}
	for key, o := range s.Objects {
		if o.Pod == nil {
			continue
		}
		uid := cmp.Or(o.Pod.UID, host.UIDs[key],
			spec.UID(key.Namespace, key.Name, host.Node))
		if before := prev.Objects[key]; before != nil && before.Hash == o.Hash &&
			before.Bound.UID == uid && before.Bound.Spec.NodeName == host.Node {
			o.Bound = before.Bound
		} else {
			o.Bound = spec.Bind(o.Pod, uid, host.Node)
		}
	}
	s.separateUIDs(prev)
}

// describe names objects for a message.
func describe(all []*Object) (files []string, keys string) {
	var names []string
	for _, o := range all {
		files, names = append(files, o.File), append(names, o.Key.String())
	}
	slices.Sort(files)
	slices.Sort(names)
	return slices.Compact(files), strings.Join(slices.Compact(names), ", ")
}
