package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Clients of besiege. One that was cut off comes again after a while: what is tried is that they are slow, not that they are quick.
const (
	besiegers = 1000
	comeAgain = 500 * time.Millisecond
)

// besiege has many clients ask at the agent's socket whether a pod is admitted, of whom none says more than half of what it wants to: most
// are slow, and each tenth sends a body of 10 MB. It says how many have come once each has.
func besiege(args []string) error {
	if len(args) != 1 {
		return errors.New("want a socket")
	}
	came := make(chan error, besiegers)
	for i := range besiegers {
		size, most := 200, 100
		if i%10 == 0 {
			size, most = 10<<20, 5<<20
		}
		body := `{"metadata":{"uid":"` + strings.Repeat("x", most)
		text := fmt.Sprintf("POST /v1/admit HTTP/1.1\r\nHost: j\r\nContent-Length: %d\r\n\r\n%s", size, body)
		go func() {
			for first := true; ; first = false {
				c, err := net.Dial("unix", args[0])
				if first {
					came <- err
				}
				if err == nil {
					_, _ = io.WriteString(c, text)
					_, _ = io.Copy(io.Discard, c) // until it is cut off
					_ = c.Close()
				}
				time.Sleep(comeAgain)
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
