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

// Clients of flood. A disconnected one reconnects after that on average. The test is about slow
// clients, not quick ones: their use of the one CPU of an emulated node would distort it.
const (
	clients   = 1000
	comeAgain = 20 * time.Second
	// sendBuffer is the kernel's send buffer of a client, in bytes. With the default of 208 KiB a
	// hundred large bodies would use and free more memory of the node than the trials leave, and an
	// eviction would have a cause outside of the pods.
	sendBuffer = 4 << 10
)

// flood connects many clients to the agent's socket. Each requests an admission and sends at most
// half of the request. Most are slow, and each tenth sends a body of 10 MB. It prints a line when
// each has connected.
func flood(args []string) error {
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
	came, slow, large := make(chan error, clients), half(200), half(10<<20) // shared, because the node has little memory
	for i := range clients {
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
					_, _ = io.Copy(io.Discard, c)                    // until the server disconnects
					_ = c.Close()
				}
				time.Sleep(rand.N(2 * comeAgain))
			}
		}()
	}
	for range clients {
		if err := <-came; err != nil {
			return err
		}
	}
	fmt.Println("besieged")
	select {}
}

// yielding runs the program at nice 19: real clients use another CPU than the leaking pod, and an
// emulated node has only one. Nice is per thread, and the next program inherits that of the
// starting thread.
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
