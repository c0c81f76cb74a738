package records

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"jettison/api"
)

// Kmsg is where the kernel's log is written to.
const Kmsg = "/dev/kmsg"

// maxKmsg bounds a line. The kernel refuses one of more than 1024 bytes less a prefix of its own
// with EINVAL (devkmsg_write: LOG_LINE_MAX in v6.1 kernel/printk/printk.c, PRINTKRB_RECORD_MAX
// since v6.4).
const maxKmsg = 900

// openKmsg opens the kernel's log for writing. To write takes no capability, only the right to open
// the device, which is root's (mode 0644); with printk.devkmsg=off that is EPERM (v6.12
// kernel/printk/printk.c devkmsg_open). Each open file may write 10 lines in 5 s with the default
// printk.devkmsg=ratelimit; what is beyond that is dropped, and the write reports success
// (devkmsg_write).
//
// It is kept from Go's poller, which every line of the kernel's would wake; to open does not block,
// whatever lies there.
func openKmsg(path string) (*os.File, error) {
	fd, err := unix.Open(path,
		unix.O_WRONLY|unix.O_APPEND|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		if err = unix.SetNonblock(fd, false); err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// kmsgLine is the line of an eviction. Its values have no spaces and no line ends, so that no name
// can look like another field or another line. <12> is user.warning (facility 1, level 4).
func kmsgLine(r *api.Record) []byte {
	var b strings.Builder
	verb, how := "evicted", ""
	switch {
	case r.WasKilled():
		how = fmt.Sprintf(" killed_at=%.6f", r.Killed.Monotonic.Seconds()) // near the line's own stamp
	case r.Error != "":
		verb, how = "evicting", " kill=refused"
	default:
		verb, how = "evicting", fmt.Sprintf(" grace=%ds", r.GracePeriodSeconds)
	}
	fmt.Fprintf(&b, "<12>jettison: %s pod %s uid=%s signal=%s",
		verb, word(r.Pod.Title(), 200), word(r.Pod.UID, 64), word(string(r.Signal), 40))
	if d := r.Decided; d != nil {
		observed := d.Text
		if observed == "" {
			observed = "unknown"
		}
		fmt.Fprintf(&b, " observed=%s threshold=%s", word(observed, 40), word(r.Threshold, 80))
	}
	fmt.Fprintf(&b, "%s qos=%s record=%s", how, word(string(r.Pod.QOSClass), 16), word(r.ID, 64))
	line := b.String()
	return []byte(line[:min(len(line), maxKmsg-1)] + "\n")
}

// word is a text as one word of ASCII.
func word(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	if text == "" {
		return "-"
	}
	return text[:min(len(text), most)]
}
