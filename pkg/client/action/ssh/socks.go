package ssh

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// socksTimeout is what a client may take to say what it wants.
const socksTimeout = 30 * time.Second

// socks reads what a client wants by SOCKS5 (RFC 1928, CONNECT without authentication). answer writes how that went.
func socks(conn net.Conn) (to string, answer func(error) error, err error) {
	if err := conn.SetDeadline(time.Now().Add(socksTimeout)); err != nil {
		return "", nil, err
	}
	buf := make([]byte, 258)
	read := func(n int) []byte {
		if err == nil {
			_, err = io.ReadFull(conn, buf[:n])
		}
		return buf[:n]
	}
	reply := func(code byte) error {
		_, err := conn.Write([]byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0})
		return err
	}
	hello := read(2)
	if err == nil && hello[0] != 5 {
		err = errors.New("it is not SOCKS5")
	}
	read(int(hello[1]))
	if err == nil {
		_, err = conn.Write([]byte{5, 0})
	}
	request := read(4)
	command, kind := request[1], request[3]
	host := ""
	switch kind {
	case 1:
		host = net.IP(read(4)).String()
	case 3:
		host = string(read(int(read(1)[0])))
	case 4:
		host = net.IP(read(16)).String()
	default:
		err = errors.Join(err, fmt.Errorf("addresses of kind %d are not supported", kind))
	}
	port := read(2)
	number := int(port[0])<<8 | int(port[1])
	if err == nil && command != 1 {
		err = errors.Join(errors.New("only CONNECT is supported"), reply(7))
	}
	if err != nil {
		return "", nil, fmt.Errorf("a client of the SOCKS port: %w", err)
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), func(failed error) error {
		code := byte(0)
		if failed != nil {
			code = 5
		}
		return errors.Join(reply(code), conn.SetDeadline(time.Time{}))
	}, nil
}
