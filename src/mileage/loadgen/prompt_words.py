"""Words that prompts are made of: each is one token in usual tokenizers, wherever it stands."""

from __future__ import annotations

from typing import Final

__all__ = ["WORDS"]

WORDS: Final[tuple[bytes, ...]] = tuple(
    b"""
this that with return from public have will your function more they data name true their private
time which false value about over type part work when other been were file would year some there
said comm like also than just result into what list case first only back need start user under
then people should test make after right array read form number require size where while look
could know hand most break every point error text show find current used play help these pass
down even item through last event again high line does before because dist state here final very
model call well object years default java view pres many being good using stud request child
echo person style method found post such think much count check open next follow game path each
support sign those system best same create made mark group world process main color report take
free action index real build message input between table head must order product place week prop
program response code without still assert field team second going range fact home left direct
allow page different around really image target both level document local content quest fore
great month super title context life catch change position book version three base console
against power width label project element success date match node another care effect service
since full turn body something stand available block keep control come custom source prov mill
output email disc business required never hard intern called options height small access
protected address little port status update link given better including always parent less
account valid prom search rest interest mult site values video cell player cost total stat load
clear short company done health children days initial online instance organ reason within design
cent school consider include stop later client love able give condition copy either important
lead family option exist offer water step display times four present room once results continue
talk mass mean until market area length kind light side example camp miss based plan away button
render near country author specific along begin software thing single season sent command money
auto working query window column record making close percent past write move special city select
font course late amount hold property price today story sort task review switch above question
word cover whether having large created host role deal problem press though points ever services
ident server files often info space password store format details face save items social major
expected food members comb send global contact except character news device material below media
fail black component added delete card root handle claim enter location night pick watch human
strong interface house track pack section wait terms apply session fund template subject history
users future mode games products known seen border live variable provided network limit went
fire community official token months learn decl mind quick comment admin represent series
original bill frame draw comes filter remove front selected according virtual hours models early
center language download buffer white register pred period screen common accept random click
players among answer walk five friend clean words header issue land stream quality works half
simple empty relations nothing running share entry changes personal offset events likely writing
rate correct fall features similar member phys foot board push please types edit defined thread
instead film phone active article almost connect feature install complete general icon party
vector normal database music speed forward crit failed term published probably weight module
loss engine issues parse lower former margin heart rather building security inside graph round
friends energy raise policy third serv training exit release outside ground unique tree ball
fast memory extra resources wrong unit coming settings blog pretty menu currently names actual
fields cases respect progress resource direction sound statement alert contract lines soon join
fill office transform hash flag note upon vert groups risk gets cause focus multiple commit
leave align reading lock standard padding states internal cross national script written images
platform force pattern entity tool feed popular allowed train related scale score student
average court container parts song channel changed ways plus profile ready latest region deep
counter lost paper staff driver category stock rules stack bottom road held includes insert
machine operation operator argument movie activity uses license ability choice flex legal
reference regular goal touch built worth natural storage grid login respond requ rule starting
seek drop errors grad usually door plant distance route primary comments updated bank sample
shape sleep safe shared priv remember scene park equal serial middle actions objects ones green
layer views core directory secret chat origin setting stuff town slow blue cast dark package
club loop played existing complex analysis computer mobile owner leading flow shift floor stage
solid editor hour books mount felt modern seconds cache roll setup growth letter collect
knowledge drive photo mother trade parents piece selection reader gold fair manager pain loaded
grand credit whose pair split capital parser education library brand charge basic star positive
conduct skin layout picture pull pages edge bound learning comfort shown classes hair wide jobs
math scope keys vote mask theme fine writer destroy liter named panel rock economic physical
rows define father nation wall cool handler sometimes tests attribute band figure rank projects
poll plot headers partial anti batch zero paid queue maximum birth maybe limited foreign fully
unless supported photos pressure enable sets meaning multi pool surface master steps builder
tools digital debug missing cart cards pointer requires norm weak places alone export testing
integer optim essential socket wood reset forms rect guard delay fish leader audio spot detail
voice links boost cells sing rates owners adding aware binary closed although domain depth posts
micro rent axis minimum flags station finished shop mail duration brain volume upload units
payment factor balance hidden trigger flash negative burn loading ship alpha replace agent
transfer journal quarter fixed perhaps degree disabled notes soft upper connected thus guide
sequence folder topic scan street mist central heat onto mouse relative remote patient gain
append hospital chain church meta prim clock radio mission managed haven glass older timer
critical execute scroll wire strings electric rich widget
""".split()
)
"""1,024 English words and pieces of code. With a space before them, and without one, each is one
token of the vocabularies of GPT-3 (p50k), GPT-4 (cl100k), GPT-4o (o200k), Qwen, DeepSeek, Mistral
(v1, v7 and tekken), Claude (as published in 2023) and SmolLM2; most to least frequent in cl100k."""
