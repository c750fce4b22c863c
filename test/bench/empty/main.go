// Command empty does nothing. Its run time is the least that a Go program takes.
package main

func main() {}
