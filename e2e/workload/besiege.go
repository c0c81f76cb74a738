package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Clients of besiege. One that was cut off comes again after that on average: what is tried is that they are slow, not that they are quick,
// and what they take of the one CPU of a node that is emulated is nobody's fault but theirs.
const (
	besiegers = 1000
	comeAgain = 20 * time.Second
	// sendBuffer is what the kernel holds of what one has said, in bytes: with its default of 208 KiB a hundred large bodies take and give
	// back more of the node than the trials leave free of it, and who is evicted then is evicted for what no pod took.
	sendBuffer = 4 << 10
)

// besiege has many clients ask at the agent's socket whether a pod is admitted, of whom none says more than half of what it wants to: most
// are slow, and each tenth sends a body of 10 MB. It says how many have come once each has.
func besiege(args []string) error {
	if len(args) != 1 {
		return errors.New("want a socket")
	}
	if err := yielding(); err != nil {
		return err
	}
	half := func(size int) []byte {
		return fmt.Appendf(nil, "POST /v1/admit HTTP/1.1\r\nHost: j\r\nContent-Length: %d\r\n\r\n%s", size,
			`{"metadata":{"uid":"`+strings.Repeat("x", size/2))
	}
	came, slow, large := make(chan error, besiegers), half(200), half(10<<20) // shared, for the node has little memory
	for i := range besiegers {
		text := slow
		if i%10 == 0 {
			text = large
		}
		go func() {
			for first := true; ; first = false {
				c, err := net.Dial("unix", args[0])
				if first {
					came <- err
				}
				if err == nil {
					_ = c.(*net.UnixConn).SetWriteBuffer(sendBuffer) // an error costs the node memory, nothing else
					_, _ = c.Write(text)                             // as bytes: a string would be copied for each
					_, _ = io.Copy(io.Discard, c)                    // until it is cut off
					_ = c.Close()
				}
				time.Sleep(rand.N(2 * comeAgain))
			}
		}()
	}
	for range besiegers {
		if err := <-came; err != nil {
			return err
		}
	}
	fmt.Println("besieged")
	select {}
}

// yielding has the program run at nice 19: clients have another CPU than the pod that leaks, or none that it wants, and a node that is
// emulated has one. Nice is of a thread, and the next program begins with that of the one that starts it.
func yielding() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const least, raw = 19, 1 // the system call's result is 20 less it
	if nice, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || nice == raw {
		return err
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, least); err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", os.Args, os.Environ())
}
