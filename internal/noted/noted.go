// Package noted writes control files of cgroups so that what was there before can be put back, after a crash too: it is noted on the
// cgroup (an extended attribute) before anything is written. A value that another process has written since stays.
package noted

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"jettison/cgroup"
)

// Control is one control file of one cgroup, as it is and as it was before the agent wrote to it.
type Control struct {
	group *cgroup.Group
	file  cgroup.LimitFile
	// Now is what the file says. Before is what it said before the agent wrote to it: Now, unless that is the agent's own.
	Now, Before cgroup.Limit
	// Ours: Now was written by the agent, by this process or one before it.
	Ours  bool
	noted bool // there is a note, whosever value is there now
}

// Read reads a control file and its note. The Group has to stay open as long as the Control is used. os.ErrNotExist: there is no such file
// here.
func Read(g *cgroup.Group, file cgroup.LimitFile) (c Control, err error) {
	c = Control{group: g, file: file}
	if c.Now, err = g.Limit(file, make([]byte, 64)); err != nil {
		return c, err
	}
	c.Before = c.Now
	text, noted, err := g.Note(name(file))
	if err != nil {
		return c, fmt.Errorf("read what is noted of %s: %w: without notes nothing is written", file, err)
	}
	if c.noted = noted; noted {
		if before, written, ok := parse(text); ok && (written[0] == c.Now || written[1] == c.Now) {
			c.Before, c.Ours = before, true
		}
	}
	return c, nil
}

// name is where a file's note is kept: where none can leave one who may only write to the cgroup, and have a value of its own choice "put
// back". Package protect keeps its own as "memory.min", where anybody can.
func name(file cgroup.LimitFile) string { return cgroup.Trusted + "before." + string(file) }

// Set writes a value; one of memory is cut to whole pages, as the kernel would cut it. changed is false where it is there already. What was
// there is noted first: "BEFORE NOW VALUE", so that a crash between the note and the write leaves what is there known for the agent's own.
func (c *Control) Set(value cgroup.Limit) (changed bool, err error) {
	if value = Cut(c.file, value); c.Now == value {
		return false, nil
	}
	text := strings.Join([]string{c.Before.String(), c.Now.String(), value.String()}, " ")
	if err := c.group.SetNote(name(c.file), text); err != nil {
		return false, fmt.Errorf("note what %s was: %w: without that it is not written", c.file, err)
	}
	c.noted = true
	if err := c.group.SetLimit(c.file, value); err != nil {
		return false, err
	}
	c.Now, c.Ours = value, true
	return true, nil
}

// Cut is a value as a file will say it: the kernel cuts memory to whole pages (v6.12 mm/page_counter.c page_counter_memparse).
func Cut(file cgroup.LimitFile, value cgroup.Limit) cgroup.Limit {
	if strings.HasPrefix(string(file), "memory.") {
		value.Bytes -= value.Bytes % uint64(os.Getpagesize())
	}
	return value
}

// Restore puts back what was there before, where the agent's own value is there still, and removes the note. changed: a value was put
// back.
func (c *Control) Restore() (changed bool, err error) {
	if c.Ours && c.Now != c.Before {
		if err := c.group.SetLimit(c.file, c.Before); err != nil {
			return false, err
		}
		c.Now, changed = c.Before, true
	}
	if c.Ours = false; c.noted {
		err = c.group.RemoveNote(name(c.file))
		c.noted = err != nil
	}
	return changed, err
}

// Any reports whether anything is noted of any of these files.
func Any(g *cgroup.Group, files ...cgroup.LimitFile) bool {
	for _, file := range files {
		if _, noted, err := g.Note(name(file)); err == nil && noted {
			return true
		}
	}
	return false
}

// Restore puts back what was there before in one cgroup, in each of the files that it has. A cgroup that is gone needs nothing. changed are
// the files that a value was put back in.
func Restore(g *cgroup.Group, files ...cgroup.LimitFile) (changed []cgroup.LimitFile, err error) {
	var errs []error
	for _, file := range files {
		text, noted, err := g.Note(name(file))
		if err != nil || !noted || text == "" { // a kernel without notes has none
			continue
		}
		c, err := Read(g, file)
		if err == nil {
			var put bool
			if put, err = c.Restore(); put {
				changed = append(changed, file)
			}
		}
		if err != nil && !errors.Is(err, cgroup.ErrVanished) {
			errs = append(errs, err)
		}
	}
	return changed, errors.Join(errs...)
}

// parse reads what Set noted, as an older or newer agent may have. Nothing is taken from it that the kernel would not have said.
func parse(text string) (before cgroup.Limit, written [2]cgroup.Limit, ok bool) {
	f := strings.Split(text, " ")
	if len(f) != 3 {
		return before, written, false
	}
	var limits [3]cgroup.Limit
	for i := range f {
		l, err := cgroup.ParseLimit([]byte(f[i]))
		if err != nil {
			return before, written, false
		}
		limits[i] = l
	}
	return limits[0], [2]cgroup.Limit{limits[1], limits[2]}, true
}
