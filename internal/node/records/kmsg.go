package records

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"jettison/api"
)

// Kmsg is the device for writing to the kernel log.
const Kmsg = "/dev/kmsg"

// maxKmsg bounds a line. The kernel rejects lines longer than 1024 bytes minus its own prefix with
// EINVAL (devkmsg_write: LOG_LINE_MAX in v6.1 kernel/printk/printk.c, PRINTKRB_RECORD_MAX since
// v6.4).
const maxKmsg = 900

// openKmsg opens the kernel log for writing. Writing needs no capability, only permission to open
// the device, which root has (mode 0644). With printk.devkmsg=off the open fails with EPERM (v6.12
// kernel/printk/printk.c devkmsg_open). With the default printk.devkmsg=ratelimit each open file
// may write 10 lines in 5 s; the kernel drops further lines and reports success (devkmsg_write).
//
// The file is not registered with Go's poller, which every line of the kernel would wake. The open
// never blocks, for any type of file.
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

// kmsgLine returns the kernel log line of an eviction. Its values have no spaces and no line
// breaks, so that no name can imitate another field or line. <12> is user.warning (facility 1,
// level 4).
func kmsgLine(r *api.Record) []byte {
	var b strings.Builder
	verb, how := "evicted", ""
	switch {
	case r.WasKilled():
		how = fmt.Sprintf(" killed_at=%.6f", r.Killed.Monotonic.Seconds()) // near the line's timestamp
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

// word returns a text as one word of ASCII characters, cut to most bytes.
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
