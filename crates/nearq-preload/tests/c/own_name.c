/* A program with a function of its own that has the name NAME, and that is never called. */

#include <stdio.h>

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)

void NAME(void);

void NAME(void)
{
    puts("called");
}

int main(void)
{
    puts(TEXT(NAME));
    return 0;
}
